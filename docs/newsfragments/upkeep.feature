`svc_manager_upkeep_total` counts what the manager keeps beside the four controllers, with an alert; it replaces `svc_manager_spire_entry_failures_total`,
and `controller="spire-instance"` counts SPIRE instances and no longer registration entries.
