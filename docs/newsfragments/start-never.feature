`startTimeout: never`: the proxy waits for its identity and its issuer without end. A leaf is asked for within a second of the moment in which
the issuer can be reached again, and an issuer that cannot be is reported in one plain line.
