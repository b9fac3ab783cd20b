"""The assessment: a task is written, a submission is graded, a certificate is signed."""
