"""
The exchange of ``svc curl``: one request, its answer and the artefacts that prove it, over one connection.

``target`` and ``request`` say what is sent, ``channel``, ``line`` and ``dialing`` carry it, ``spool`` keeps the answer
back, ``artifacts`` fetches statement and receipt, ``judgement`` decides, ``conduct`` puts it together, ``presentation``
prints.
"""
