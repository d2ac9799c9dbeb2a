package sandbox

import "fmt"

// DoorHooks are the attempts of the network's part: the very calls of a launch.
func DoorHooks() ProbeHooks {
	return ProbeHooks{Tproxy: func() error {
		d, err := openDoors(Plan{CaptureAll: true})
		if err != nil {
			return fmt.Errorf("capture every TCP port: %w", err)
		}
		d.close()
		return nil
	}}
}
