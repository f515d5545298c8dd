`onRotation` of a listener: what becomes of open connections when the proxy has a new SVID. `keep` (the default) lets them go on, `drain` asks
them to end, `reauth` closes those whose former SVID would now be refused by bundles or deny lists.
