// Command goclient is the clients of coder/websocket and of gRPC that the tests
// run inside: it prints what happens.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	switch os.Args[1] {
	case "ws":
		err = socket(ctx, os.Args[2], os.Args[3:])
	case "grpc":
		err = calls(ctx, os.Args[2])
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// dial goes where CLIENT_DIAL says, where names mean nothing.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if to := os.Getenv("CLIENT_DIAL"); to != "" {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		addr = net.JoinHostPort(to, port)
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

func socket(ctx context.Context, address string, messages []string) error {
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	s, resp, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPClient: client, CompressionMode: websocket.CompressionContextTakeover})
	if err != nil && resp != nil {
		fmt.Println("refused", resp.StatusCode)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = s.CloseNow() }()
	fmt.Println("open")
	for _, m := range messages {
		if err := s.Write(ctx, websocket.MessageText, []byte(m)); err != nil {
			return err
		}
		_, got, err := s.Read(ctx)
		var closed websocket.CloseError
		if errors.As(err, &closed) {
			fmt.Println("close", int(closed.Code))
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Println("message", string(got))
	}
	err = s.Close(websocket.StatusNormalClosure, "")
	fmt.Println("close", 1000)
	return err
}

func calls(ctx context.Context, address string) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{})),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, "tcp", addr) }))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := pb.NewTestServiceClient(conn)
	unary, err := client.UnaryCall(ctx, &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte("one")}})
	fmt.Println("unary", status.Code(err), string(unary.GetPayload().GetBody()))
	fmt.Println("stream", serverStream(ctx, client))
	fmt.Println("both", bothWays(ctx, client))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err = client.UnaryCall(short, &pb.SimpleRequest{FillUsername: true})
	fmt.Println("deadline", status.Code(err))
	_, err = client.EmptyCall(ctx, &pb.Empty{})
	fmt.Println("empty", status.Code(err))
	return nil
}

func serverStream(ctx context.Context, client pb.TestServiceClient) string {
	s, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{ResponseParameters: []*pb.ResponseParameters{{}, {}, {}}})
	n := 0
	for ; err == nil; n++ {
		_, err = s.Recv()
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Sprint(status.Code(err))
	}
	return fmt.Sprint(n - 1)
}

func bothWays(ctx context.Context, client pb.TestServiceClient) string {
	s, err := client.FullDuplexCall(ctx)
	n := 0
	for ; err == nil && n < 3; n++ {
		if err = s.Send(&pb.StreamingOutputCallRequest{}); err == nil {
			_, err = s.Recv() // each before the next is sent
		}
	}
	if err == nil {
		_ = s.CloseSend()
		_, err = s.Recv()
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Sprint(status.Code(err))
	}
	return fmt.Sprint(n)
}
