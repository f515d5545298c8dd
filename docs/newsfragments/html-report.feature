`svc verify --html` writes the account of a verification as one self-contained page for people who read neither JSON nor
certificates: who, what, when, each check with its result, and what is not proven.
