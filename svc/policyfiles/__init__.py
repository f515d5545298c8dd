"""
Policies as people write them: documents of files and of a cluster, the configuration section, tables of cases.

``document`` owns the keys, ``files`` which files belong together, ``settings`` what a configuration adds, ``cases`` the
offline questions. The decisions are made in :mod:`svc.policy`.
"""
