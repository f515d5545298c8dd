The manager adopts the SPIRE of the chart as a `SpireInstance`, whose conditions say what of it is ready; two gauges and an alert follow it.
