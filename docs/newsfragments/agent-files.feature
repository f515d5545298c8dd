`svc-agent` writes SVIDs, bundles and post-quantum leaves to files that change together, and then sends a signal or runs a command ([files for programs](docs/agent.md#files-for-programs)).
