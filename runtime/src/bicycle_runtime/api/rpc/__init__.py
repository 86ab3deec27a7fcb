"""The gRPC door: ``bicycle.v1.JobManager`` with the calls and objects of the REST API."""
