Records have no fixed rate any more: one identity gets all that the proxy can sign and write, and while several want records they share
it, so that one with many connections does not delay the others. `notary.receiptsPerSecond` and `recordOctetsPerSecond` are off by default.
