"""Before the first job: is this machine able to run one, and a new plugin project to begin with."""
