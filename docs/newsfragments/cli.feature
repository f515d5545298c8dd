`svc curl` sends one HTTP request over mutual TLS and shows the answer only after it has verified the workload statement
and, on demand, the signed receipt; `svc verify` judges saved evidence offline; completion for bash, zsh and fish.
