An identity that is held back since others want records too, or at its own rate, is named by `svc.notary.admissions_held`;
`svc_proxy_notary_admissions_held_total` counts such admissions and `svc_proxy_notary_admissions_waiting` shows how many wait.
