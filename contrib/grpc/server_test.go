package grpclock_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/quorumlock/quorumlock"
	grpclock "github.com/quorumlock/quorumlock/contrib/grpc"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
)

// service is the tests' service of gRPC itself: UnaryCall, StreamingOutputCall, whose server
// streams, and FullDuplexCall, in which both stream.
type service struct {
	testgrpc.UnimplementedTestServiceServer
	unary  func(ctx context.Context, customer string) error
	output func(testgrpc.TestService_StreamingOutputCallServer) error
	duplex func(testgrpc.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	return &testgrpc.SimpleResponse{}, s.unary(ctx, string(r.GetPayload().GetBody()))
}

func (s *service) EmptyCall(ctx context.Context, _ *testgrpc.Empty) (*testgrpc.Empty, error) {
	return &testgrpc.Empty{}, s.unary(ctx, "")
}

func (s *service) StreamingOutputCall(_ *testgrpc.StreamingOutputCallRequest, stream testgrpc.TestService_StreamingOutputCallServer) error {
	return s.output(stream)
}

func (s *service) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	return s.duplex(stream)
}

// customer is the key function of the tests. EmptyCall needs no lock, nor does a stream without
// metadata.
func customer(ctx context.Context, method string, request any) (string, bool) {
	switch r := request.(type) {
	case *testgrpc.SimpleRequest:
		return string(r.GetPayload().GetBody()), method == testgrpc.TestService_UnaryCall_FullMethodName
	case *testgrpc.StreamingOutputCallRequest:
		return string(r.GetPayload().GetBody()), true
	case nil:
		if v := metadata.ValueFromIncomingContext(ctx, "customer"); len(v) > 0 {
			return v[0], true
		}
	}
	return "", false
}

// server is a server with its client.
type server struct {
	t *testing.T
	testgrpc.TestServiceClient
	conn *grpc.ClientConn

	mu   sync.Mutex
	last error
}

// start starts a server with the interceptors, inside of others. It ends with the test.
func start(t *testing.T, one grpclock.Interceptors, s *service, others ...grpc.StreamServerInterceptor) *server {
	t.Helper()
	started := &server{t: t}
	see := func(err error) error {
		started.mu.Lock()
		defer started.mu.Unlock()
		started.last = err
		return err
	}
	g := grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
			defer func() { err = recovered(err, recover()) }()
			resp, err := next(ctx, r)
			return resp, see(err)
		}, one.Unary),
		grpc.ChainStreamInterceptor(append(append([]grpc.StreamServerInterceptor{
			func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
				defer func() { err = recovered(err, recover()) }()
				return see(next(srv, ss))
			},
		}, others...), one.Stream)...))
	testgrpc.RegisterTestServiceServer(g, s)
	g.RegisterService(&careless, nil)
	listener := bufconn.Listen(1 << 16)
	go func() { testkit.OK(t, g.Serve(listener), "Serve") }()
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	testkit.Must(t, err, "NewClient")
	t.Cleanup(func() {
		testkit.OK(t, conn.Close(), "Close")
		g.GracefulStop() // waits for the handlers
	})
	started.TestServiceClient, started.conn = testgrpc.NewTestServiceClient(conn), conn
	return started
}

// err returns the error of the last call, as an interceptor outside of the lock's sees it.
func (s *server) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// recovered turns a panic into an error, as recovery interceptors do.
func recovered(err error, p any) error {
	if p != nil {
		return status.Errorf(codes.DataLoss, "panic: %v", p)
	}
	return err
}

// careless is a service whose handlers ignore what Recv and Send return.
var careless = grpc.ServiceDesc{ServiceName: "Careless", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
	{StreamName: "Receives", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		refused := stream.RecvMsg(new(testgrpc.StreamingOutputCallRequest))
		if refused != nil && (stream.SendMsg(new(testgrpc.StreamingOutputCallResponse)) != refused || stream.RecvMsg(new(testgrpc.StreamingOutputCallRequest)) != refused) {
			panic("the refusal was forgotten")
		}
		_ = stream.SendMsg(new(testgrpc.StreamingOutputCallResponse))
		return nil
	}},
	{StreamName: "Sends", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		return stream.SendMsg(new(testgrpc.StreamingOutputCallResponse))
	}},
}}

func payload(customer string) *testgrpc.Payload { return &testgrpc.Payload{Body: []byte(customer)} }

func (s *server) call(ctx context.Context, customer string) error {
	_, err := s.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: payload(customer)})
	return err
}

// output calls StreamingOutputCall, and returns the number of messages.
func (s *server) output(customer string) (n int, err error) {
	s.t.Helper()
	stream, err := s.StreamingOutputCall(s.t.Context(), &testgrpc.StreamingOutputCallRequest{Payload: payload(customer)})
	testkit.Must(s.t, err, "StreamingOutputCall")
	for {
		if _, err := stream.Recv(); err != nil {
			return n, err
		}
		n++
	}
}

// metadataOf returns a context for a stream of that customer.
func metadataOf(ctx context.Context, customer string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "customer", customer)
}

// duplex begins a FullDuplexCall.
func (s *server) duplex(customer string) testgrpc.TestService_FullDuplexCallClient {
	s.t.Helper()
	stream, err := s.FullDuplexCall(metadataOf(s.t.Context(), customer))
	testkit.Must(s.t, err, "FullDuplexCall")
	return stream
}

func exclusive(t *testing.T, lock func(string) quorumlock.Locker, wait time.Duration) grpclock.Interceptors {
	t.Helper()
	one, err := grpclock.Exclusive(lock, customer, wait)
	testkit.Must(t, err, "Exclusive")
	return one
}

// only returns the interceptors with one lock for all keys.
func only(t *testing.T, lock *locktest.Locker, wait time.Duration) grpclock.Interceptors {
	t.Helper()
	return exclusive(t, func(string) quorumlock.Locker { return lock }, wait)
}

// is checks the code of an error, and its RetryInfo: 0 if it must have none.
func is(t *testing.T, err error, code codes.Code, retry time.Duration) {
	t.Helper()
	s := status.Convert(err)
	var after time.Duration
	for _, d := range s.Details() {
		after = d.(*errdetails.RetryInfo).GetRetryDelay().AsDuration()
	}
	if s.Code() != code || after != retry {
		t.Errorf("%v, RetryInfo %v: want %v and %v", err, after, code, retry)
	}
}
