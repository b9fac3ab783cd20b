"""The assessment: write the task, grade a submission, sign a certificate."""
