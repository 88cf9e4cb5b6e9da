"""What torch was built with."""

from lab_hardware import settings

cuda = settings().machine.cuda_version
