Requests and responses of the usual form are read at a glance: a third less CPU time for a small request.
