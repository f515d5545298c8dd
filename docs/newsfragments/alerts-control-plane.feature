Alerts for parts that are away (`SvcManagerDown`, `SvcAgentDown`, `SvcSpireDown`), a controller that does nothing but fail
(`SvcManagerControllerFails`) and refusals of all proxies together (`SvcFleetAuthFailures`).
