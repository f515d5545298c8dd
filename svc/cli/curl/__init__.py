"""
``svc curl``: one request, its response and the artifacts that prove it, over one connection.

``command`` has the flags, ``plan`` what they mean together, ``target`` and ``request`` what is sent, ``network`` opens
the ``connection`` that carries it, ``body`` keeps the response back, ``exchange`` runs the steps in their order,
``verification`` decides, ``problem`` explains a refusal of the proxy, ``presentation`` prints, ``evidence`` saves,
``debug_log`` logs for ``-v 1``, and ``run`` leads from the plan to the exit status.
"""
