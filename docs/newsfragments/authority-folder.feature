svc-authority makes the folders of its sockets and bundle files (0755) where they are absent, below an `emptyDir` for example.
