package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// segment is the memfd and the mapping of its lanes.
type segment struct {
	fd      int
	mem     []byte // nil before openSegment and after close
	off     int    // of mem in the file
	trackFD func(fd int, open bool)
}

// segmentBytes is the size of the whole file. Lanes that nobody opens take no memory.
func segmentBytes(c Config) int { return headBytes(c.Size) + MaxLanes*laneBytes(c) }

// createSegment makes the memfd and reserves the header.
func createSegment(c Config) (fd int, err error) {
	fd, err = unix.MemfdCreate("gorovod", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	if err := unix.Ftruncate(fd, int64(segmentBytes(c))); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("size the segment to %d bytes: %w", segmentBytes(c), err)
	}
	if err := reserve(fd, 0, headBytes(c.Size)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// reserve takes memory for a part of the segment now, so that a lack of memory is an error here and not a SIGBUS later.
func reserve(fd, off, n int) error {
	for {
		err := unix.Fallocate(fd, 0, int64(off), int64(n))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
			return fmt.Errorf("no memory for the shared segment: %d bytes are needed: %w", n, err)
		default:
			return fmt.Errorf("reserve %d bytes of the shared segment: %w", n, err)
		}
	}
}

// mapShared maps a part of fd. Forked children do not have the mapping.
func mapShared(fd, off, n int) ([]byte, error) {
	mem, err := unix.Mmap(fd, int64(off), n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the shared segment: %w", n, err)
	}
	if err := unix.Madvise(mem, unix.MADV_DONTFORK); err != nil {
		unix.Munmap(mem)
		return nil, fmt.Errorf("keep the shared segment from forked children: %w", err)
	}
	return mem, nil
}

// prefault maps the pages of mem, a part of the segment that has been reserved, into this process now. Otherwise the
// first operations take a fault for each page. An error is ignored, because an old system does not know the call.
func prefault(mem []byte) { _ = unix.Madvise(mem, unix.MADV_POPULATE_WRITE) }

// openSegment maps the lanes of fd, which belongs to the segment from now on.
func openSegment(fd int, c Config) (segment, error) {
	off := headBytes(c.Size)
	mem, err := mapShared(fd, off, segmentBytes(c)-off)
	if err != nil {
		return segment{}, err
	}
	c.TrackFD(fd, true)
	return segment{fd: fd, mem: mem, off: off, trackFD: c.TrackFD}, nil
}

// close is called once, also on a segment that was never opened.
func (s *segment) close() error {
	if s.mem == nil {
		return nil
	}
	s.trackFD(s.fd, false)
	err := errors.Join(unix.Munmap(s.mem), unix.Close(s.fd))
	s.mem, s.fd = nil, -1
	return err
}
