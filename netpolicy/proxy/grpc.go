package proxy

// grpc judges the service and method of a call.
func (fl *flow) grpc() *refusal {
	return forbidden(fl.f.host, "the proxy does not judge gRPC")
}
