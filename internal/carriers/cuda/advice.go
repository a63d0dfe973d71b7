package cuda

// advice says what a user can do if the driver does not start.
func advice(code int) string {
	switch code {
	case 34: // CUDA_ERROR_STUB_LIBRARY
		return "this file is for compilers only: take its folder out of LD_LIBRARY_PATH"
	case 802: // CUDA_ERROR_SYSTEM_NOT_READY
		return "if the GPUs are connected by NVSwitch, start nvidia-fabricmanager"
	case 803: // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
		return "the kernel has another version of the driver: restart the machine after an update, and let a " +
			"container use the machine's own libcuda"
	case 804: // CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
		return "this file is of a package cuda-compat, which this GPU cannot use: take its folder out of " +
			"LD_LIBRARY_PATH"
	case 999: // CUDA_ERROR_UNKNOWN
		return "load the kernel's module nvidia_uvm (sudo nvidia-modprobe -u), give a container /dev/nvidia-uvm, or " +
			"restart the machine"
	}
	return "check whether nvidia-smi works"
}
