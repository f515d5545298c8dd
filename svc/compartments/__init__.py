"""
Compartments of multi-level security as the wrapper commands of ``svc`` use them: values, contexts, the configuration.

No module here does I/O. :mod:`svc.compartments.compartment` and :mod:`svc.compartments.config` are on the path of
every kubectl command that passes through ``svc`` and import neither pydantic nor ruamel; what reads and changes the
text of the file does.
"""
