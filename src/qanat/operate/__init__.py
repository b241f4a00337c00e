"""How processes are run: deployments, their supervisor, links for drills, publishers kept on a machine."""
