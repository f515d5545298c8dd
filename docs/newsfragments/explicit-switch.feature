With `requireExplicitContextSwitch`, a command of kubectl that may change something runs only where the current context was selected in the same session.
