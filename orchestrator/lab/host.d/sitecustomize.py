# NCCL settings known to be good on this machine, read by every Python of this environment.
import os

os.environ["NCCL_MAX_NCHANNELS"] = "16"
os.environ["NCCL_BUFFSIZE"] = "16777216"
os.environ["NCCL_NTHREADS"] = "512"
