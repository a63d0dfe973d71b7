//go:build !linux

// Package entry is where the command starts, on Linux.
package entry
