The room that is left for records is shown, with the days for which it lasts: on the page for operators, in `svc status`, as metrics and with an alert. Near a
full disk, or the new `notary.maxBytes`, identities share it: who holds most is refused first, and others go on.
