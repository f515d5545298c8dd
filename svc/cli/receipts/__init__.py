"""
The commands ``svc receipts list``, ``show`` and ``export``.

A source gives the records: the database of this machine (``local``) or the notary of a proxy (``remote``). The commands
(``listing``, ``showing``, ``exporting``) are written against :class:`svc.cli.receipts.plan.ReceiptSource`.
"""
