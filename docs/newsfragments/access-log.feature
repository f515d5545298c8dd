With `accessLog: on` every exchange has one record, also one whose client left or that was cut, with listener, outcome, octets,
duration, level and receipt; `accessLog: path` adds the path. A change of it keeps listeners and connections.
