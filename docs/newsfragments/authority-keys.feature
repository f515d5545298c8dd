`svc-authority` keeps its keys over a restart where `dataDir` names a folder for them: no request fails then. Without it they end
with the process, as before.
