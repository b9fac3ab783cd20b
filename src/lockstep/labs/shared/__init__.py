"""The common parts of all labs: the page, pictures, tasks, quizzes, progress, the server."""
