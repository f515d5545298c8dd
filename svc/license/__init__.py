"""
Licenses: signed files that say what a customer may use, and in which state such a license is at a given time.

``armour`` is the text around the envelope, ``payload`` what a license says, ``vendors`` the keys that may sign one,
``verification`` the one verifier, ``states`` the state, which is evaluated at every use. There is no I/O and no clock
here, and no process that carries traffic imports this package: a license that has ended never stops any.
"""
