Verifying an audit chain says, where records are missing, how many lines the process itself counted as not written there.
