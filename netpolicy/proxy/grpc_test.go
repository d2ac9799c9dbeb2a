package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding/gzip"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/hermes-wrap/hermes-wrap/audit"
	"github.com/hermes-wrap/hermes-wrap/policy"
)

// callNetwork allows some calls of one service.
func callNetwork() policy.Network {
	return policy.Network{Rules: []policy.Rule{
		{
			Name: "calls", Host: "api.example.org", Protocol: policy.ProtocolGRPC, AllowSet: true,
			Allow: []policy.Match{{Calls: []string{"grpc.testing.TestService/*"}}},
			Deny:  []policy.Match{{Calls: []string{"grpc.testing.TestService/EmptyCall"}}},
		},
		{Name: "http", Host: "api.example.org", Access: "read-write"},
	}}
}

// callServer answers calls.
type callServer struct {
	pb.UnimplementedTestServiceServer
}

func (callServer) EmptyCall(context.Context, *pb.Empty) (*pb.Empty, error) { return &pb.Empty{}, nil }

func (callServer) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	if r.GetFillUsername() { // stands for a call that takes too long
		<-ctx.Done()
		return nil, ctx.Err()
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-end", "yes"))
	return &pb.SimpleResponse{Payload: r.GetPayload()}, nil
}

func (callServer) StreamingOutputCall(r *pb.StreamingOutputCallRequest, s grpc.ServerStreamingServer[pb.StreamingOutputCallResponse]) error {
	for range r.GetResponseParameters() {
		if err := s.Send(&pb.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
	return status.Error(codes.DataLoss, "at the end")
}

func (callServer) FullDuplexCall(s grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&pb.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

// calls gives a client inside and publishes a server that also has a service
// which no rule names.
func (w *world) calls() *grpc.ClientConn {
	w.t.Helper()
	config := w.serverTLS()
	config.NextProtos = []string{"h2"}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	pb.RegisterTestServiceServer(server, callServer{})
	l := w.listen()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	w.t.Cleanup(func() {
		server.Stop()
		<-done
	})
	w.publish("api.example.org", 443, l.Addr().String())
	return w.dialCalls()
}

func (w *world) dialCalls() *grpc.ClientConn {
	w.t.Helper()
	door := w.door("api.example.org", 443)
	c, err := grpc.NewClient("passthrough:///api.example.org",
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{ServerName: "api.example.org", RootCAs: poolOf(w.t, w.srv.Authority)})),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", door)
		}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func payload(text string) *pb.Payload { return &pb.Payload{Body: []byte(text)} }

// Calls of every kind pass, compressed ones too, with trailers and status.
func TestGRPC(t *testing.T) {
	w := newWorld(t, callNetwork())
	client := pb.NewTestServiceClient(w.calls())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t.Run("unary", func(t *testing.T) {
		for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
			var trailer metadata.MD
			got, err := client.UnaryCall(ctx, &pb.SimpleRequest{Payload: payload("hello")}, append(options, grpc.Trailer(&trailer))...)
			if err != nil || string(got.GetPayload().GetBody()) != "hello" || len(trailer["x-end"]) != 1 {
				t.Errorf("got %v %v %v, want hello and a trailer", got, trailer, err)
			}
		}
	})
	t.Run("server stream", func(t *testing.T) {
		s, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{
			Payload: payload("part"), ResponseParameters: []*pb.ResponseParameters{{}, {}, {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if got, err := s.Recv(); err != nil || string(got.GetPayload().GetBody()) != "part" {
				t.Fatalf("got %v %v, want part", got, err)
			}
		}
		if _, err := s.Recv(); status.Code(err) != codes.DataLoss {
			t.Errorf("end: got %v, want DataLoss", err)
		}
	})
	t.Run("both ways", func(t *testing.T) {
		s, err := client.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"one", "two", "three"} {
			if err := s.Send(&pb.StreamingOutputCallRequest{Payload: payload(text)}); err != nil {
				t.Fatal(err)
			}
			if got, err := s.Recv(); err != nil || string(got.GetPayload().GetBody()) != text {
				t.Fatalf("got %v %v, want %s before anything more is sent", got, err, text)
			}
		}
		_ = s.CloseSend()
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("end: got %v, want EOF", err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := client.UnaryCall(short, &pb.SimpleRequest{FillUsername: true}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
	})
	w.wantNoFault()
}

// A denied call is told so in the way that clients of gRPC understand, at once
// and for good, and the connection goes on.
func TestGRPCDenied(t *testing.T) {
	w := newWorld(t, callNetwork())
	conn := w.calls()
	client := pb.NewTestServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := client.EmptyCall(ctx, &pb.Empty{})
	if got := status.Convert(err); got.Code() != codes.PermissionDenied || !strings.Contains(got.Message(), "EmptyCall") {
		t.Errorf("method in deny: got %v, want PermissionDenied that names it", err)
	}
	_, err = pb.NewUnimplementedServiceClient(conn).UnimplementedCall(ctx, &pb.Empty{})
	if got := status.Code(err); got != codes.PermissionDenied {
		t.Errorf("other service: got %v, want PermissionDenied", err)
	}
	stream, err := pb.NewUnimplementedServiceClient(conn).UnimplementedCall(ctx, &pb.Empty{}, grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("other service, compressed: got %v %v, want PermissionDenied", stream, err)
	}
	if _, err := client.UnaryCall(ctx, &pb.SimpleRequest{}); err != nil {
		t.Errorf("control after it: got %v, want success", err)
	}
	w.wantEvent("denied call", func(e audit.Event) bool {
		return e.Kind == audit.KindRequest && e.Verdict == audit.Deny && e.Path == "/grpc.testing.TestService/EmptyCall" && e.Rule == "calls"
	})
}

// A server that speaks HTTP/1.1 alone cannot answer a call, and a variant of gRPC
// that no rule can read is refused.
func TestGRPCVariants(t *testing.T) {
	cases := []struct {
		name, kind string
		h2         bool
		want       int
	}{
		{"control: no call", "application/json", true, http.StatusOK},
		{"gRPC-Web", "application/grpc-web+proto", true, http.StatusForbidden},
		{"gRPC-Web over HTTP/1.1", "application/grpc-web-text", false, http.StatusForbidden},
		{"HTTP/1.1", "application/grpc", false, http.StatusForbidden},
		{"two types", "application/json, application/grpc", true, http.StatusForbidden},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, callNetwork())
			server := &echo{}
			w.serve("api.example.org", 443, server)
			resp, err := w.client("api.example.org", 443, c.h2).Post("https://api.example.org/grpc.testing.TestService/UnaryCall", c.kind, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			if body := readBody(t, resp); resp.StatusCode != c.want {
				t.Errorf("got %d %s, want %d", resp.StatusCode, body, c.want)
			}
			if got := len(server.requests()); got != map[bool]int{true: 1}[c.want == http.StatusOK] {
				t.Errorf("server saw %d requests", got)
			}
		})
	}
	t.Run("server without HTTP/2", func(t *testing.T) {
		w := newWorld(t, callNetwork())
		w.serveRaw("api.example.org", 443, func(c net.Conn) {
			config := w.serverTLS()
			config.NextProtos = []string{"http/1.1"}
			tc := tls.Server(c, config)
			_, _ = io.WriteString(tc, "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nGrpc-Status: 0\r\nContent-Length: 0\r\n\r\n")
			_, _ = io.Copy(io.Discard, tc)
		})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := pb.NewTestServiceClient(w.dialCalls()).UnaryCall(ctx, &pb.SimpleRequest{})
		if got := status.Code(err); got != codes.Unavailable {
			t.Errorf("got %v, want Unavailable", err)
		}
	})
}
