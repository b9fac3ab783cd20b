"""What all labs share: the page, pictures, tasks, quizzes, progress, the server."""
