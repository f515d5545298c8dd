`SIGHUP` reloads the rules of access of svc-broker as a whole or not at all: clients that no rule names are closed with 0x87, subscriptions
that are not allowed any more end, stored sessions included. What needs a restart is named in the log; `svc_broker_config_reloads_total` counts.
