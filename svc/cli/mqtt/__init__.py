"""
The commands below ``svc mqtt``: what an operator does with the MQTT messages of a proxy of this machine.

``command`` has the flags, ``dead_letters`` the work.
"""
