"""The live side of routing: task files, prompts, answers and evaluations. The routers are in `controllers/routing`."""
