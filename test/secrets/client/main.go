// Command client is what the tests of credentials run inside: a client of S3,
// and a search through the memory of every process that can be opened.
package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "s3":
		err = objects(os.Args[2])
	case len(os.Args) > 2 && os.Args[1] == "memory":
		err = memory(os.Args[2:])
	default:
		err = errors.New("usage: client s3 URL | client memory HEXTOKEN…")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// objects puts, gets and lists as any program with the SDK does.
func objects(endpoint string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	c := s3.New(s3.Options{
		Region: "eu-central-1", BaseEndpoint: aws.String(endpoint), UsePathStyle: true, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")),
	})
	bucket := aws.String("bucket")
	for _, key := range []string{"plain.txt", "dir/a b+c=d&e.txt", "dir/ü~(1)*!'.txt"} {
		text := strings.Repeat("content of "+key+"\n", 5000)
		if _, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: strings.NewReader(text)}); err != nil {
			return fmt.Errorf("put %q: %w", key, err)
		}
		got, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: &key})
		if err != nil {
			return fmt.Errorf("get %q: %w", key, err)
		}
		b, err := io.ReadAll(got.Body)
		if err != nil || string(b) != text {
			return fmt.Errorf("get %q: got %d bytes, %w, want %d", key, len(b), err, len(text))
		}
		fmt.Println("kept", key)
	}
	list, err := c.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: bucket, Prefix: aws.String("dir/a b+")})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	fmt.Println("listed", len(list.Contents))
	return nil
}

// memory prints which processes hold which of the tokens, itself left out: it
// was told them.
func memory(tokens []string) error {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	opened := 0
	for _, p := range processes {
		if p == "/proc/"+strconv.Itoa(os.Getpid()) {
			continue
		}
		ranges, err := os.ReadFile(p + "/maps")
		if err != nil {
			fmt.Println("closed", p)
			continue
		}
		mem, err := os.Open(p + "/mem")
		if err != nil {
			fmt.Println("closed", p)
			continue
		}
		opened++
		for i, token := range tokens {
			plain, err := hex.DecodeString(token)
			if err != nil {
				return err
			}
			if holds(mem, string(ranges), plain) {
				fmt.Println("found", i, p)
			}
		}
		_ = mem.Close()
	}
	fmt.Println("opened", opened)
	return nil
}

func holds(mem io.ReaderAt, maps string, token []byte) bool {
	for line := range strings.Lines(maps) {
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil || to-from > 1<<28 {
			continue
		}
		b := make([]byte, to-from)
		n, _ := mem.ReadAt(b, from)
		if bytes.Contains(b[:n], token) {
			return true
		}
	}
	return false
}
