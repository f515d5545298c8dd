`bin/release` and `bin/image` build the keys of the vendor into what they make, with `--vendor-key FILE` and `--release-key FILE`, and say when
there is none. `svc license info` of a program without them names the key that it lacks.
