"""The gRPC door: ``bicycle.v1.JobManager`` with calls and objects of the REST API."""
