package options

import "context"

type withoutClients struct{}

// WithoutClients returns a context for checks that must not list a server's clients. A server with
// 10,000 connections needs milliseconds for the list, and does nothing else meanwhile.
func WithoutClients(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutClients{}, true)
}

// AsksForClients reports whether a check may list a server's clients.
func AsksForClients(ctx context.Context) bool { return ctx.Value(withoutClients{}) == nil }
