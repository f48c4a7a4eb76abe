package options

import "context"

type withoutClients struct{}

// WithoutClients returns a context with which a check does not ask servers for their clients. A server with 10,000
// connections needs milliseconds to list them, in which it does nothing else.
func WithoutClients(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutClients{}, true)
}

// AsksForClients reports whether a check asks servers for their clients.
func AsksForClients(ctx context.Context) bool { return ctx.Value(withoutClients{}) == nil }
