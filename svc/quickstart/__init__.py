"""
The main job on one machine in one command: an authority, an application behind the proxy, and a verified request.

``bin/quickstart`` runs it. It uses the other processes through their command lines and configuration files only.
"""
