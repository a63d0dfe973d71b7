package feed

// Class is a range of sizes of collectives.
type Class uint8

// NumClasses is the number of classes. The last one has no limit.
const NumClasses = 6

// Limits are the largest sizes of all classes but the last, in bytes.
var Limits = [NumClasses - 1]uint64{1 << 10, 32 << 10, 1 << 20, 32 << 20, 1 << 30}

var classNames = [NumClasses]string{"1KiB", "32KiB", "1MiB", "32MiB", "1GiB", "larger"}

// ClassOf is the class of a collective of so many bytes.
func ClassOf(bytes uint64) Class {
	for i, most := range Limits {
		if bytes <= most {
			return Class(i)
		}
	}
	return NumClasses - 1
}

// String is the largest size of the class.
func (c Class) String() string {
	if c >= NumClasses {
		return "unknown"
	}
	return classNames[c]
}
