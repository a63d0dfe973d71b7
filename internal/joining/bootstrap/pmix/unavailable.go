//go:build !cgo || !linux

package pmix

import (
	"context"
	"errors"
)

var errUnavailable = errors.New("this program was built without cgo, by which PMIx's library is called")

// Client stands for a client of PMIx. In this build there is none: Open fails.
type Client struct{}

// Open fails.
func Open(context.Context, Options) (*Client, error) { return nil, errUnavailable }

// Version is never called, nor are the methods below.
func (c *Client) Version() string { return "" }

func (c *Client) Put(ctx context.Context, key string, v []byte) error { return errUnavailable }

func (c *Client) Fence(ctx context.Context) error { return errUnavailable }

func (c *Client) Get(ctx context.Context, rank int, key string) ([]byte, error) {
	return nil, errUnavailable
}

func (c *Client) CallRoll(key string) ([][]byte, error) { return nil, errUnavailable }

func (c *Client) Hosts() []string { return nil }

func (c *Client) Done() {}
