`svc apply` puts the compartment that is in effect on objects and on the templates of pods in them, and refuses objects of another compartment
unless `--force` is given.
