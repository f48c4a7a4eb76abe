package grpclock_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/quorumlock/quorumlock"
	grpclock "github.com/quorumlock/quorumlock/contrib/grpc"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func ExampleExclusive() {
	client, _, stop := testkit.Connect(3) // in place of redlock.Dial(urls)
	defer stop()

	one, err := grpclock.Exclusive(client.Lockers("myapp:customer:"), func(_ context.Context, _ string, request any) (string, bool) {
		r, ok := request.(*testgrpc.SimpleRequest) // other methods need no lock
		return string(r.GetPayload().GetBody()), ok
	}, 0)
	if err != nil {
		panic(err)
	}
	_ = grpc.NewServer(grpc.ChainUnaryInterceptor(one.Unary), grpc.ChainStreamInterceptor(one.Stream))

	place := func(customer string, handler grpc.UnaryHandler) error { // the server does this
		_, err := one.Unary(context.Background(), &testgrpc.SimpleRequest{Payload: payload(customer)}, &grpc.UnaryServerInfo{}, handler)
		return err
	}
	nothing := func(context.Context, any) (any, error) { return nil, nil }
	fmt.Println("the first:", place("7", func(ctx context.Context, _ any) (any, error) {
		lease, _ := quorumlock.LeaseOf(ctx)
		fmt.Println("holds", lease.Name())
		fmt.Println("another of customer 7:", status.Code(place("7", nothing)))
		fmt.Println("one of customer 8:", status.Code(place("8", nothing)))
		return nil, nil
	}))
	// Output:
	// holds myapp:customer:7
	// another of customer 7: Aborted
	// one of customer 8: OK
	// the first: <nil>
}
