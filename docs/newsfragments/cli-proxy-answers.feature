`svc curl` names the cause of a proxy's own refusal on standard error, with what to do, also where the answer passes and the exit status
is 0.
